"""The studies behind docs/results.md: what runs, what it is compared with, and how the page is made of it."""
