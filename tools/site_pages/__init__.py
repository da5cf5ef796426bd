"""The pages of the site that are made when it is built: policies, the API reference, and executed notebooks."""
