# C types of hot_batches.py, for the compiled form; signatures only.
cimport cython

cdef Py_ssize_t _ROOM, _PAIR_ROOM
cdef bytes _BASE64
cdef int _PAD
cdef long long _MASK, _POSITIVE

cdef class Columns:
    cdef public Py_ssize_t count
    cdef const long long[::1] _value_offsets
    cdef const unsigned char[::1] _value_data
    cdef const unsigned char[::1] _value_nulls
    cdef const long long[::1] _key_offsets
    cdef const unsigned char[::1] _key_data
    cdef const unsigned char[::1] _key_nulls
    cdef const long long[::1] _head_offsets
    cdef const unsigned char[::1] _head_data
    cdef const long long[::1] _event_times
    cdef bint _binary_keys
    cdef bint _has_keys
    cdef bint _has_heads
    cdef bint _has_events
    cdef bint _has_value_nulls
    cdef bint _has_key_nulls

@cython.locals(size='Py_ssize_t', end='Py_ssize_t', last='Py_ssize_t')
cpdef Py_ssize_t cut(Columns columns, Py_ssize_t first, Py_ssize_t max_messages, Py_ssize_t max_bytes) except -1

@cython.locals(size='Py_ssize_t', key='Py_ssize_t')
cdef Py_ssize_t _row_bound(Columns columns, Py_ssize_t row) except -1

@cython.locals(bound='Py_ssize_t', row='Py_ssize_t', size='Py_ssize_t', out=bytearray)
cpdef bytearray encode(Columns columns, Py_ssize_t first, Py_ssize_t end)

@cython.locals(position='Py_ssize_t', row='Py_ssize_t')
cdef Py_ssize_t _put_rows(unsigned char[::1] out, Columns columns, Py_ssize_t first, Py_ssize_t end) except -1

@cython.locals(position='Py_ssize_t', at='Py_ssize_t', size='Py_ssize_t', metadata='Py_ssize_t', keyed='bint', null='bint')
cdef Py_ssize_t _put_row(unsigned char[::1] out, Py_ssize_t start, Columns columns, Py_ssize_t row) except -1

@cython.locals(at='Py_ssize_t', size='Py_ssize_t')
cdef Py_ssize_t _put_key(unsigned char[::1] out, Py_ssize_t position, Columns columns, Py_ssize_t row) except -1

@cython.locals(end='Py_ssize_t', left='Py_ssize_t', group='long long')
cdef Py_ssize_t _put_base64(unsigned char[::1] out, Py_ssize_t position, Columns columns, Py_ssize_t at, Py_ssize_t size) except -1

cdef Py_ssize_t _put_varint(unsigned char[::1] out, Py_ssize_t position, long long value) except -1

@cython.locals(row='Py_ssize_t', at='Py_ssize_t', end='Py_ssize_t', text=bytearray)
cpdef route(Columns columns, long long partitions, int[::1] out)

@cython.locals(value='long long', unit='long long')
cdef long long _hash(const unsigned char[::1] text, Py_ssize_t at, Py_ssize_t end) except -1

@cython.locals(count='Py_ssize_t', first='Py_ssize_t', last='Py_ssize_t', size='Py_ssize_t', out=bytearray)
cpdef bytearray property_heads(const int[::1] rows, const unsigned char[::1] nulls, tuple keys, tuple values, long long[::1] ends)

@cython.locals(count='Py_ssize_t', has_nulls='bint', position='Py_ssize_t', row='Py_ssize_t', pair='Py_ssize_t', end='Py_ssize_t', key_at='Py_ssize_t', key_size='Py_ssize_t', value_at='Py_ssize_t', value_size='Py_ssize_t', inner='Py_ssize_t')
cdef Py_ssize_t _put_pairs(unsigned char[::1] out, const int[::1] rows, const unsigned char[::1] nulls, const long long[::1] key_offsets, const unsigned char[::1] key_data, const long long[::1] value_offsets, const unsigned char[::1] value_data, long long[::1] ends) except -1

cdef Py_ssize_t _varint_size(long long value) except -1
