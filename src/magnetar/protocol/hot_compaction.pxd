# C types of hot_compaction.py, for the compiled form; signatures only.
cimport cython

cdef class LatestKeys:
    cdef public bint retain_keyless
    cdef public list shelves
    cdef public long long key_count
    cdef public long long key_bytes
    cdef public bytearray bits
    cdef public long long count
    cdef public object whole
    cdef public Py_ssize_t whole_at
    cdef public list parts
    cdef public long long part_bytes
    cdef public Py_ssize_t payload
    cdef public Py_ssize_t key
    cdef public Py_ssize_t key_end
    cdef public long long messages
    cdef public long long size

    @cython.locals(index='Py_ssize_t', kind='int')
    cpdef Py_ssize_t number(self, bytes buffer, long long[::1] starts, long long[::1] ends, Py_ssize_t first, Py_ssize_t end) except -1

    @cython.locals(size='long long')
    cdef int _number_one(self, bytes buffer, Py_ssize_t end) except -1

    cpdef long long number_keyed(self, bytes buffer, Py_ssize_t end) except -1

    cpdef number_whole(self)

    cpdef long long number_kept(self) except -1

    @cython.locals(number='long long')
    cdef int _next(self, bint stays) except -1

    cdef int _put(self, bytes key, long long number, bint stays) except -1

    @cython.locals(parts=list, part=bytearray, size='long long')
    cdef int _note(self, bytes key, long long number, bint stays) except -1

    @cython.locals(former='long long', shelf=dict)
    cpdef spill(self, Py_ssize_t number)

    @cython.locals(shelf=dict)
    cpdef forget(self, Py_ssize_t number)

    @cython.locals(former='long long', shelf=dict)
    cpdef drop_keys(self, Py_ssize_t number)

    @cython.locals(position='Py_ssize_t', end='Py_ssize_t', size='Py_ssize_t', key=bytes, number='long long')
    cpdef Py_ssize_t take_noted(self, bytes records, long long share, long long shares) except -1

    @cython.locals(former='long long', shelf=dict)
    cdef int _take(self, bytes key, long long number, bint stays) except -1

    @cython.locals(at='Py_ssize_t', _index='long long')
    cpdef bint number_batch(self, bytes payload, Py_ssize_t position, Py_ssize_t end, long long count) except -1

    @cython.locals(stop='long long', after='Py_ssize_t', tag='long long', size='long long')
    cdef Py_ssize_t _single(self, bytes payload, Py_ssize_t position, Py_ssize_t end) except -2

    @cython.locals(position='Py_ssize_t', stop='Py_ssize_t', after='Py_ssize_t', tag='long long', size='long long', value='long long', batch='bint', compressed='bint', encrypted='bint', marker='bint', chunks='bint')
    cpdef int look(self, bytes buffer, Py_ssize_t start, Py_ssize_t end) except -1

    cpdef begin_copy(self)

    cpdef long long staying(self, Py_ssize_t first, Py_ssize_t end) except -1

    cpdef bint stays(self, long long number) except -1

    cpdef drop(self, long long number)

    @cython.locals(number='long long')
    cpdef bint any_stay(self, long long first, long long end) except -1

    cpdef pass_by(self, long long end)

    @cython.locals(index='Py_ssize_t', messages='long long', kept='long long', number='long long')
    cpdef Py_ssize_t copy(self, long long[::1] ledger_ids, long long[::1] entry_ids, bytes buffer, long long[::1] starts, long long[::1] ends, Py_ssize_t first, Py_ssize_t end, long long partition, bytearray out, object out_ends) except -1

    @cython.locals(kind='int')
    cdef long long _messages(self, bytes buffer, Py_ssize_t start, Py_ssize_t end) except -1

    @cython.locals(count='long long', out=bytearray, position='Py_ssize_t', number='long long', after='Py_ssize_t', _index='long long')
    cpdef bytes left_of(self, bytes payload)

@cython.locals(start='Py_ssize_t', size='Py_ssize_t')
cpdef put_raw(bytearray out, object out_ends, long long ledger_id, long long entry_id, long long partition, bytes entry)

@cython.locals(index='Py_ssize_t', position='Py_ssize_t', end='Py_ssize_t', stop='long long', ledger_id='long long', entry_id='long long', after='Py_ssize_t', tag='long long', value='long long')
cpdef Py_ssize_t open_raw(bytes buffer, long long[::1] starts, long long[::1] ends, Py_ssize_t count, long long[::1] ledger_ids, long long[::1] entry_ids, long long[::1] opened_starts) except -1

@cython.locals(index='Py_ssize_t')
cpdef shift(long long[::1] offsets, long long by)

@cython.locals(index='Py_ssize_t', last='long long')
cpdef bint ascend(long long[::1] ends, long long start, long long end) except -1

@cython.locals(index='Py_ssize_t')
cpdef Py_ssize_t consecutive(long long[::1] ledger_ids, long long[::1] entry_ids, Py_ssize_t first, Py_ssize_t count) except -1

@cython.locals(shift='int')
cdef int _append_varint(bytearray out, long long value) except -1

@cython.locals(size='long long')
cdef long long _size_at(bytes buffer, Py_ssize_t position) except? -1

@cython.locals(index='Py_ssize_t')
cdef Py_ssize_t _varint_end(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(value='long long', byte='long long', shift='int')
cdef long long _varint(bytes buffer, Py_ssize_t position, Py_ssize_t end) except? -1

@cython.locals(size='long long')
cdef Py_ssize_t _metadata_at(bytes buffer, Py_ssize_t start, Py_ssize_t end) except? -1
