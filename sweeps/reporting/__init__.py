"""Reports made from records: tables, figures, claims, the gallery and event files."""
