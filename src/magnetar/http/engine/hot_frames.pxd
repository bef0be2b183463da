# C types of hot_frames.py, for the compiled form; signatures only.
cimport cython

cdef int _FINAL, _MASKED, _CONTROL, _WHOLE_TEXT, _TEXT, _LARGEST_CONTROL, _LAST_KIND

@cython.locals(data=bytes, size='Py_ssize_t')
cpdef bytes text_frame(str text)

cpdef bytes text_fragment(str text, bint first, bint last)

cdef class FrameReader:
    cdef long long _largest
    cdef bytearray _rest
    cdef long long _wanted
    cdef bint _in_parts
    cdef bint _given_up
    cdef readonly long long left_out

    @cython.locals(found=list, at='Py_ssize_t', end='Py_ssize_t', size='long long', skipped='long long')
    cpdef list read(self, bytes data)

    @cython.locals(first='int', kind='int', size='long long', head='int', shortest='long long')
    cdef long long _size(self, bytes data, Py_ssize_t at, Py_ssize_t end) except -1

    @cython.locals(first='int', start='Py_ssize_t')
    cdef object _text(self, bytes data, Py_ssize_t at, Py_ssize_t size)

@cython.locals(size='Py_ssize_t', repeated=bytes)
cdef bytes _unmasked(bytes mask, bytes data)
