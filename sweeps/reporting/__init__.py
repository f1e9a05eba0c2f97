"""Reports: tables, figures, claims, the gallery and event files, all drawn from records."""
