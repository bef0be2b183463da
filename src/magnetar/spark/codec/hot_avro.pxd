# C types of hot_avro.py, for the compiled form; signatures only.
cimport cython

cdef int BOOLEAN, INTEGER, FLOAT, DOUBLE, BYTES

cdef class Column:
    cdef public int kind
    cdef public object numbers
    cdef public object offsets
    cdef public bytearray data
    cdef public bytearray valid
    cdef public Py_ssize_t end
    cdef long long[::1] _numbers
    cdef int[::1] _offsets
    cdef unsigned char[::1] _data
    cdef unsigned char[::1] _valid

cdef class FlatReader:
    cdef const unsigned char[::1] _kinds
    cdef const unsigned char[::1] _nulls
    cdef Py_ssize_t _fields
    cdef Py_ssize_t _position
    cdef long long _number

    @cython.locals(source='const unsigned char[::1]', places='const int[::1]', row='Py_ssize_t')
    cpdef bint read(self, data, offsets, Py_ssize_t count, list columns) except -1
    @cython.locals(field='Py_ssize_t', null='int', column=Column)
    cdef bint _record(self, const unsigned char[::1] source, Py_ssize_t start, Py_ssize_t end, Py_ssize_t row, list columns) except -1
    @cython.locals(size='long long', start='Py_ssize_t', place='Py_ssize_t', index='Py_ssize_t')
    cdef bint _value(self, const unsigned char[::1] source, Py_ssize_t end, Py_ssize_t row, int kind, Column column) except -1
    @cython.locals(position='Py_ssize_t', value='unsigned long long', shift='int', byte='unsigned long long', half='long long')
    cdef bint _take_number(self, const unsigned char[::1] source, Py_ssize_t end) except -1
