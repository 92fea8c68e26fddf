"""What people see: templates, styles and scripts of the live page, without a build step and with nothing from outside.

`templates/` the frame of each page, `static/lib` what all scripts share, `static/charts` plots over steps,
`static/pages` one script per page, `static/style` what it looks like, `static/vendor` what others wrote, with version
and licence. A script reads the same API that any other client reads.
"""
