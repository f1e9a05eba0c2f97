"""Reports made from records: tables, figures, claims, the gallery, the HTML page and runs of tracking tools."""
