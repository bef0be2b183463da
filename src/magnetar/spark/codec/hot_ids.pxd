# C types of hot_ids.py, for the compiled form; signatures only.
cimport cython

cdef int _TOP

@cython.locals(count='Py_ssize_t', out=bytearray)
cpdef bytearray sort_keys(const long long[::1] offsets, const unsigned char[::1] data)

@cython.locals(row='Py_ssize_t', size='Py_ssize_t')
cdef int _put_keys(unsigned char[::1] out, const long long[::1] offsets, const unsigned char[::1] data, Py_ssize_t count) except -1

@cython.locals(ledger='long long', entry='long long', index='long long', value='long long', tag='int', kind='int', shift='int', byte='long long')
cdef int _put_key(unsigned char[::1] out, Py_ssize_t position, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) except -1

cdef int _put_number(unsigned char[::1] out, Py_ssize_t position, Py_ssize_t size, long long value) except -1
