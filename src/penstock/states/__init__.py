"""What the states of all operators share: snapshots, and checks of the arrays that come back from one."""
