"""What tests of Klamm, ours and other people's, are built with. Nothing that a broker runs may import it."""
