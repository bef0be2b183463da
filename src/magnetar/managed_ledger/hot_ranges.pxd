# C types of hot_ranges.py, for the compiled form; signatures only.
cimport cython

cdef class EntryRanges:
    cdef public list starts
    cdef public list ends

    @cython.locals(starts=list, ends=list, count='Py_ssize_t', first='Py_ssize_t', last='Py_ssize_t', low='long long', high='long long', covered='long long')
    cpdef long long add(self, long long start, long long end) except -1

    @cython.locals(added='long long', index='Py_ssize_t', start='long long', end='long long')
    cpdef long long add_each(self, long long[::1] entry_ids, Py_ssize_t first, Py_ssize_t stop, long long lowest, long long limit) except -1

    cpdef bint contains(self, long long entry_id) except -1

    @cython.locals(index='Py_ssize_t')
    cpdef long long end_of_range_at(self, long long entry_id) except? -1

    @cython.locals(index='Py_ssize_t')
    cpdef object start_of_next_range(self, long long entry_id)

    @cython.locals(index='Py_ssize_t')
    cpdef forget_below(self, long long entry_id)

cdef long long _at(list values, Py_ssize_t index) except? -1

@cython.locals(low='Py_ssize_t', high='Py_ssize_t', middle='Py_ssize_t')
cdef Py_ssize_t _at_or_above(list values, long long wanted) except -1

@cython.locals(index='Py_ssize_t')
cpdef Py_ssize_t same_ledger_until(long long[::1] ledger_ids, Py_ssize_t first, Py_ssize_t count) except -1

@cython.locals(index='Py_ssize_t')
cpdef Py_ssize_t consecutive_until(long long[::1] entry_ids, Py_ssize_t first, Py_ssize_t stop) except -1
