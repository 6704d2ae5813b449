"""All SQL of the product: migrations, named queries, and the Postgres stores that run them."""
