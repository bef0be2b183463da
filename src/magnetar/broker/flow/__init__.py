"""Flow control: budgets of a turn of the loop, of memory and of rates. The package does not depend on
topics."""
