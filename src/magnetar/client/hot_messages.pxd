# C types of hot_messages.py, for the compiled form; signatures only.
cimport cython

cdef class PlainId:
    cdef public object _partition
    cdef public object _ledger_id
    cdef public object _entry_id
    cdef public object _batch_index
    cdef public object _batch_size

cdef class PlainMessage:
    cdef public object _topic
    cdef public object _id
    cdef public object _entry
    cdef public object _single_raw
    cdef public object _own_metadata
    cdef public object _content
    cdef public object _redeliveries

@cython.locals(index='Py_ssize_t', size='Py_ssize_t', words='Py_ssize_t', start='Py_ssize_t', middle='Py_ssize_t', end='Py_ssize_t', message_id='PlainId', message='PlainMessage', found='list')
cpdef list messages_of(object kind, object id_kind, object topic, object entry, bytes payload, object places, tuple ids, object redeliveries, tuple ack_set)
