"""Flow control: budgets of a turn of the loop, of memory and of rates. Nothing here depends on topics."""
