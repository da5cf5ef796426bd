"""Plain, slow simulations that the tests compare the library with."""
