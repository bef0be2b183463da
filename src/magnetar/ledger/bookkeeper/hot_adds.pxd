# C types of hot_adds.py, for the compiled form; signatures only.
cimport cython

cdef int _AROUND, _COPY_LIMIT, _ANSWER, _ADDED
cdef bytes _GOOD

@cython.locals(index='Py_ssize_t', start='Py_ssize_t', end='Py_ssize_t', size='Py_ssize_t', payload=bytes)
cpdef long long add_frames(bytes prefix, long long ledger_id, long long entry_id, long long confirmed, long long length, bytes buffer, long long[::1] starts, long long[::1] ends, Py_ssize_t first, Py_ssize_t count, list pieces) except -1

cdef class AddedRun:
    cdef public Py_ssize_t capacity
    cdef public long long ledger_id
    cdef public Py_ssize_t count
    cdef public object entry_ids
    cdef long long[::1] _ids

@cython.locals(count='Py_ssize_t', index='Py_ssize_t', ledger_id='long long')
cpdef Py_ssize_t read_added(bytes data, Py_ssize_t position, Py_ssize_t end, AddedRun run) except -1

@cython.locals(high='int', value='long long', index='Py_ssize_t')
cdef long long _number_at(bytes data, Py_ssize_t position) except? -1

cdef class Stripe:
    cdef public long long index
    cdef public long long ensemble
    cdef public long long write
    cdef public long long next
    cdef public set early

    cpdef bint takes(self, long long entry_id) except -1

    @cython.locals(index='Py_ssize_t')
    cpdef answered(self, long long[::1] entry_ids, Py_ssize_t count)

    cpdef answered_one(self, long long entry_id)

    cdef int _step(self) except -1

@cython.locals(size='Py_ssize_t', step='Py_ssize_t', count='Py_ssize_t', entry_id='long long', nexts=list, stripe=Stripe)
cpdef long long confirmed_through(list stripes, long long write, long long ack, long long first, long long end) except? -2
