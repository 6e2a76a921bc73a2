"""Records as columns: work per batch, never per record.

columns                             the columns of some records
columns_encode, columns_decode      columns <-> record batches
columns_arrow                       columns <-> Arrow
value_views                         large values that are not copied
columns_loops                       which loops do the work, the compiled or the plain ones:
columns_compiled, columns_kernels   with numba
columns_plain                       in plain Python
columns_arrays_decode               many records at once, by numpy
columns_arrays_encode               the way back
record_check, record_check_kernel   whether records can be read at all; its compiled loop
varint_kernels                      compiled reading of varints, for both kinds of kernels
"""
