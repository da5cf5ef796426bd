"""The strategy `columnar`: a kernel searches columns of positions per slot."""
