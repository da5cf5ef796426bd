"""Systems that surround a Spark job: brokers and tables, started and filled for the tests that need them."""
