"""Who may do what: `doors` says what each route asks for, `keys` knows the tokens, `guard` stands before all routes."""
