"""scrape_url: fetch a page, politely, and extract what was asked for."""
