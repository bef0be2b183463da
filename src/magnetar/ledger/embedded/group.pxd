# C types of group.py, for the compiled form; signatures only.
cimport cython

@cython.locals(entry=bytes, last='Py_ssize_t', index='Py_ssize_t', entries=list, sizes='unsigned int[::1]')
cpdef tuple gather(bytes buffer, long long[::1] starts, long long[::1] ends, Py_ssize_t first, Py_ssize_t count)

@cython.locals(table_end='Py_ssize_t', body_at='Py_ssize_t', length='Py_ssize_t', checksum='unsigned int', pieces=list, table=list, body=list, piece=bytes, covered=bytes)
cpdef tuple build_group(unsigned long long segment_id, unsigned long long offset, unsigned long long sequence, unsigned long long durable_up_to, list runs)
