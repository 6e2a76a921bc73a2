"""Parts that all commands share: help, options, tables, progress, one-line errors.

app                          format of every command's help
options, bootstrap_address   options of several commands; the brokers' addresses
moments                      log positions and times, as users write them
confirmation, secret_input   questions before data is lost; input of secrets
output, progress             results to stdout, everything else to stderr; progress bars
failure, interrupt           one-line errors with cause and remedy; Ctrl-C as a request to end
authorization_failure        which right is missing, and the command that gives it
"""
