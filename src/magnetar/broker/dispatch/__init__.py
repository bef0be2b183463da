"""Who gets an entry next: a dispatcher for each type of subscription."""
