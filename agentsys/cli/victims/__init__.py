"""Commands of simulated victims: fitting them to published runs, and planning runs by them."""
