# C types of hot_origin.py, for the compiled form; signatures only.
cimport cython

cdef bytes _KEY
cdef int _KEY_SIZE, _DIGITS
cdef int _PROPERTIES, _REPLICATED_FROM, _ENCRYPTION_KEYS, _MARKER_TYPE

@cython.locals(index='Py_ssize_t', some='int', lacking='int', found='int')
cpdef int read_origins(bytes buffer, long long[::1] starts, long long[::1] ends, Py_ssize_t first, Py_ssize_t count, long long[::1] ledger_ids, long long[::1] entry_ids, int[::1] marks) except? -1

@cython.locals(index='Py_ssize_t')
cpdef Py_ssize_t first_foreign(bytes buffer, long long[::1] starts, long long[::1] ends, Py_ssize_t count) except? -1

@cython.locals(position='Py_ssize_t', after='Py_ssize_t', tag='long long')
cdef bint _is_foreign(bytes buffer, Py_ssize_t start, Py_ssize_t end) except -1

@cython.locals(position='Py_ssize_t', after='Py_ssize_t', value='Py_ssize_t', tag='long long', found='int')
cdef int _look(bytes buffer, Py_ssize_t start, Py_ssize_t end, long long[::1] ledger_ids, long long[::1] entry_ids, Py_ssize_t index) except -1

cdef Py_ssize_t _position_at(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(middle='Py_ssize_t')
cdef bint _put(bytes buffer, Py_ssize_t position, Py_ssize_t end, long long[::1] ledger_ids, long long[::1] entry_ids, Py_ssize_t index) except -1

@cython.locals(start='Py_ssize_t')
cdef Py_ssize_t _number_end(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(value='long long')
cdef long long _number(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(position='Py_ssize_t', size='long long')
cdef Py_ssize_t _metadata_at(bytes buffer, Py_ssize_t start, Py_ssize_t end) except? -1

@cython.locals(size='long long')
cdef long long _size_at(bytes buffer, Py_ssize_t position) except? -1

@cython.locals(index='Py_ssize_t')
cdef Py_ssize_t _varint_end(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(value='long long', byte='long long', shift='int')
cdef long long _varint(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(wire='int', after='Py_ssize_t', size='long long')
cdef Py_ssize_t _skip(bytes buffer, Py_ssize_t position, Py_ssize_t end, long long tag) except? -1
