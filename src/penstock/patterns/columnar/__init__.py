"""The strategy `columnar`: columns of positions per slot, searched by a kernel."""
