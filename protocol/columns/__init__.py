"""Records as columns: work per batch, never per record.

columns                           the columns of some records
columns_encode, columns_decode    columns <-> record batches
columns_arrow                     columns <-> Arrow
record_check                      whether records can be read at all
columns_kernels, columns_loops, columns_compiled, columns_plain   the loops, compiled or not
"""
