"""What is measured: the series store, PromQL over it, how scraping labels a sample. "No data" is a value."""
