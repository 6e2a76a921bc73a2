"""What all commands share: help, options, tables, progress, one-line errors.

app                          the form of every command's help
options, bootstrap_address   options that several commands share; where the brokers are
moments                      places in a log and times, as users write them
confirmation, secret_input   a question before something is lost; a secret that is needed
output, progress             results to stdout, all else to stderr; progress bars
failure, interrupt           one line, cause and remedy; Ctrl-C as a wish to end
"""
