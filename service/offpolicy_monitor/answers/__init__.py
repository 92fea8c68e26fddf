"""What the pages say, as text in a terminal: the sentence first, then a compact table.

`style` knows colours and columns of a terminal, `table` and `spark` lay out values; `lists`, `run`, `diagnosis` and
`whatif` write one answer of the API each; `command` asks and prints. All but the last are pure: answers in, text out.
"""
