# C types of hot_messages.py, for the compiled form; signatures only.
cimport cython

cdef class PlainId:
    cdef public long long _partition
    cdef public long long _ledger_id
    cdef public long long _entry_id
    cdef public long long _batch_index
    cdef public long long _batch_size

cdef class PlainEntry:
    cdef public object ledger_id
    cdef public object entry_id
    cdef public object partition
    cdef public object redeliveries
    cdef public object batch_size
    cdef public bytes data
    cdef public tuple ack_set
    cdef public object _parsed

@cython.locals(index='Py_ssize_t', start='Py_ssize_t', end='Py_ssize_t', entry='PlainEntry', found='list')
cpdef list entries_of(object kind, bytes buffer, object run, object partition)

cdef class PlainMessage:
    cdef public object _topic
    cdef public long long _partition
    cdef public long long _ledger_id
    cdef public long long _entry_id
    cdef public long long _batch_index
    cdef public long long _batch_size
    cdef public object _id
    cdef public object _entry
    cdef public object _single_raw
    cdef public object _own_metadata
    cdef public object _content
    cdef public object _redeliveries

@cython.locals(index='Py_ssize_t', size='Py_ssize_t', words='Py_ssize_t', start='Py_ssize_t', middle='Py_ssize_t', end='Py_ssize_t', message='PlainMessage', found='list', partition='long long', ledger_id='long long', entry_id='long long')
cpdef list messages_of(object kind, object topic, object entry, bytes payload, object places, tuple ids, object redeliveries, tuple ack_set)

@cython.locals(ledger_id='long long', entry_id='long long', first='long long', last='long long', size='long long', index='long long', ledger='long long', entry='long long', batch_size='long long', message='PlainMessage', message_id='PlainId', found='list')
cpdef list runs_of(object taken, object meant_by)

@cython.locals(data='bytes', start='Py_ssize_t', size='Py_ssize_t', limit='Py_ssize_t', entry='PlainEntry', message='PlainMessage', found='list')
cpdef tuple plain_messages_of(object kind, object topic, object entries, Py_ssize_t limit, object content_at)
