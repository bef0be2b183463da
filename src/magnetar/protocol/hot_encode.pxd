# C types of hot_encode.py, for the compiled form; signatures only.
cimport cython

cdef Py_ssize_t _RECEIPT_ROOM, _MESSAGE_ROOM

@cython.locals(size='int')
cdef int _varint_size(long long value) except -1

@cython.locals(last='Py_ssize_t')
cdef Py_ssize_t _put_varint(unsigned char[::1] out, Py_ssize_t position, long long value) except -1

cdef int _put_size(unsigned char[::1] out, Py_ssize_t position, long long size) except -1

@cython.locals(size='Py_ssize_t', end='Py_ssize_t')
cpdef bytearray encode_receipts(long long producer_id, long long ledger_id, long long first_entry_id, long long[::1] sequence_ids, long long[::1] highest_sequence_ids, Py_ssize_t first, Py_ssize_t count, long long step=*)

@cython.locals(position='Py_ssize_t', start='Py_ssize_t', sequence_id='long long', highest_id='long long', base='long long', same='Py_ssize_t', size='Py_ssize_t', highest_at='Py_ssize_t', entry_at='Py_ssize_t', sequence_at='Py_ssize_t', filled='Py_ssize_t', more='Py_ssize_t', change='long long', highest_change='long long')
cdef Py_ssize_t _put_receipts(unsigned char[::1] out, long long producer_id, long long ledger_id, long long entry_id, long long[::1] sequences, long long[::1] highest, Py_ssize_t index, Py_ssize_t end, long long step) except -1

@cython.locals(id_size='int', position='Py_ssize_t')
cdef Py_ssize_t _put_receipt(unsigned char[::1] out, Py_ssize_t start, long long producer_id, long long ledger_id, long long entry_id, long long sequence_id, long long highest_sequence_id) except -1

@cython.locals(size='Py_ssize_t', end='Py_ssize_t')
cpdef bytearray encode_messages(long long consumer_id, long long ledger_id, long long first_entry_id, bytes buffer, long long[::1] starts, long long[::1] ends, Py_ssize_t first, Py_ssize_t count, long long partition=*, long long epoch=*)

@cython.locals(size='Py_ssize_t', end='Py_ssize_t')
cpdef bytearray encode_alike(long long consumer_id, long long ledger_id, long long entry_id, bytes buffer, long long[::1] starts, long long[::1] ends, Py_ssize_t first, Py_ssize_t count, long long partition=*, long long epoch=*)

@cython.locals(position='Py_ssize_t', header='Py_ssize_t', template='Py_ssize_t', start='Py_ssize_t', size='Py_ssize_t')
cdef Py_ssize_t _put_alike(unsigned char[::1] out, const unsigned char[::1] buffer, long long consumer_id, long long ledger_id, long long entry_id, long long[::1] starts, long long[::1] ends, Py_ssize_t index, Py_ssize_t end, long long partition, long long epoch) except -1

@cython.locals(room='Py_ssize_t')
cdef Py_ssize_t _messages_room(long long[::1] starts, long long[::1] ends, Py_ssize_t index, Py_ssize_t end) except -1

@cython.locals(room='Py_ssize_t', index='Py_ssize_t', out=bytearray)
cpdef bytearray encode_chosen(long long consumer_id, long long ledger_id, long long first_entry_id, bytes buffer, long long[::1] starts, long long[::1] ends, long long[::1] chosen, Py_ssize_t count, long long partition=*)

@cython.locals(position='Py_ssize_t', index='Py_ssize_t', start='Py_ssize_t', size='Py_ssize_t', entry_id='long long')
cdef Py_ssize_t _put_chosen(unsigned char[::1] out, const unsigned char[::1] buffer, long long consumer_id, long long ledger_id, long long first_entry_id, long long[::1] starts, long long[::1] ends, long long[::1] chosen, Py_ssize_t count, long long partition) except -1

@cython.locals(fixed='Py_ssize_t', size='Py_ssize_t', index='Py_ssize_t')
cpdef Py_ssize_t messages_size(long long consumer_id, long long ledger_id, long long first_entry_id, long long[::1] starts, long long[::1] ends, Py_ssize_t first, Py_ssize_t count, long long partition=*) except? -1

@cython.locals(position='Py_ssize_t', header='Py_ssize_t', entry_at='Py_ssize_t', template='Py_ssize_t', base='long long', start='Py_ssize_t', size='Py_ssize_t')
cdef Py_ssize_t _put_messages(unsigned char[::1] out, const unsigned char[::1] buffer, long long consumer_id, long long ledger_id, long long entry_id, long long[::1] starts, long long[::1] ends, Py_ssize_t index, Py_ssize_t end, long long partition, long long epoch) except -1

@cython.locals(position='Py_ssize_t')
cdef Py_ssize_t _put_message_header(unsigned char[::1] out, Py_ssize_t start, long long consumer_id, long long ledger_id, long long entry_id, long long partition, Py_ssize_t size, long long epoch) except -1

@cython.locals(out=bytearray, end='Py_ssize_t')
cpdef bytes message_head(long long consumer_id, long long ledger_id, long long entry_id, Py_ssize_t size, long long partition=*, long long epoch=*)

cdef Py_ssize_t _put_message_id(unsigned char[::1] out, Py_ssize_t position, long long ledger_id, long long entry_id, long long partition) except -1

@cython.locals(body=bytearray, command=bytearray, out=bytearray, position='Py_ssize_t')
cpdef bytearray encode_message(long long consumer_id, long long ledger_id, long long entry_id, long long redelivery_count, ack_set, consumer_epoch, bytes buffer, Py_ssize_t start, Py_ssize_t end, long long partition=*)

@cython.locals(field=bytearray)
cdef bytearray _number_field(int tag, long long value)
