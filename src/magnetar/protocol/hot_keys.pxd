# C types of hot_keys.py, for the compiled form; signatures only.
cimport cython

cdef unsigned long long _MASK, _FIRST, _SECOND, _ADDED, _LAST_1, _LAST_2

cdef class KeyRouting:
    cdef public Py_ssize_t capacity
    cdef public object slots
    cdef public object sizes
    cdef public object order
    cdef public object packed
    cdef public object entry_ids
    cdef public object sorted_sizes
    cdef int[::1] _slots
    cdef int[::1] _sizes
    cdef long long[::1] _order
    cdef long long[::1] _packed
    cdef long long[::1] _ids
    cdef int[::1] _sorted

@cython.locals(slots='int[::1]', sizes='int[::1]', order='long long[::1]', packed='long long[::1]', ids='long long[::1]', sorted_sizes='int[::1]', groups='Py_ssize_t', index='Py_ssize_t', holder='Py_ssize_t', entry='Py_ssize_t', slot='long long')
cpdef group_by_holder(KeyRouting routing, Py_ssize_t count, Py_ssize_t first, long long first_entry_id, int[::1] segments, int[::1] holders, int[::1] bounds)

@cython.locals(low='Py_ssize_t', high='Py_ssize_t', middle='Py_ssize_t')
cdef Py_ssize_t _segment(int[::1] segments, int slot) except -1

cpdef int holder_of(int slot, int[::1] segments, int[::1] holders) except? -2

@cython.locals(index='Py_ssize_t')
cpdef key_slots(bytes buffer, long long[::1] starts, long long[::1] ends, Py_ssize_t first, Py_ssize_t count, int modulo, int[::1] out)

@cython.locals(slot='int')
cpdef int slot_of(long long key_hash, int modulo) except -1

@cython.locals(position='Py_ssize_t', size='long long')
cpdef bytes sticky_key(bytes buffer, Py_ssize_t start, Py_ssize_t end)

@cython.locals(key=bytes)
cpdef long long key_hash(bytes buffer, Py_ssize_t start, Py_ssize_t end) except -1

cdef long long _key_hash(bytes buffer, Py_ssize_t start, Py_ssize_t end) except -1

@cython.locals(ordering='Py_ssize_t', ordering_end='Py_ssize_t', key='Py_ssize_t', key_end='Py_ssize_t', name='Py_ssize_t', name_end='Py_ssize_t', sequence_id='long long', encoded='bint', tag='long long', after='Py_ssize_t', size='long long')
cdef bytes _key(bytes buffer, Py_ssize_t position, Py_ssize_t end)

@cython.locals(value='unsigned long long', position='Py_ssize_t', whole='Py_ssize_t', block='unsigned long long')
cdef unsigned long long _murmur3(bytes data, Py_ssize_t size) except? 7

cdef unsigned long long _scrambled(unsigned long long block) except? 7

@cython.locals(size='long long')
cdef long long _size_at(bytes buffer, Py_ssize_t position) except? -1

@cython.locals(index='Py_ssize_t')
cdef Py_ssize_t _varint_end(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(value='long long', byte='long long', shift='int')
cdef long long _varint(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(position='Py_ssize_t', size='long long')
cdef Py_ssize_t _metadata_at(bytes buffer, Py_ssize_t start, Py_ssize_t end) except? -1
