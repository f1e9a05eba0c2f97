"""Runs, resumes and reports experiments."""
