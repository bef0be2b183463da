"""How much flows: budgets of a turn, of memory, of rates; nothing here knows a topic."""
