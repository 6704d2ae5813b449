"""The demo: thirteen years of real daily prices, alerts through the API, mail and webhooks that really arrive."""
