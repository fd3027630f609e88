//! The opcodes of plain data, protocols 2 to 5, by their published numbers.

pub(crate) const PROTO: u8 = 0x80;
pub(crate) const FRAME: u8 = 0x95;
pub(crate) const STOP: u8 = b'.';
pub(crate) const MARK: u8 = b'(';
pub(crate) const POP: u8 = b'0';
pub(crate) const POP_MARK: u8 = b'1';
pub(crate) const DUP: u8 = b'2';

pub(crate) const NONE: u8 = b'N';
pub(crate) const TRUE: u8 = 0x88;
pub(crate) const FALSE: u8 = 0x89;
pub(crate) const BININT: u8 = b'J';
pub(crate) const BININT1: u8 = b'K';
pub(crate) const BININT2: u8 = b'M';
pub(crate) const LONG1: u8 = 0x8a;
pub(crate) const LONG4: u8 = 0x8b;
pub(crate) const BINFLOAT: u8 = b'G';

pub(crate) const SHORT_TEXT: u8 = 0x8c;
pub(crate) const TEXT: u8 = b'X';
pub(crate) const TEXT8: u8 = 0x8d;
pub(crate) const SHORT_STRING: u8 = b'U';
pub(crate) const STRING: u8 = b'T';
pub(crate) const SHORT_BYTES: u8 = b'C';
pub(crate) const BYTES: u8 = b'B';
pub(crate) const BYTES8: u8 = 0x8e;

pub(crate) const EMPTY_DICT: u8 = b'}';
pub(crate) const EMPTY_LIST: u8 = b']';
pub(crate) const EMPTY_TUPLE: u8 = b')';
pub(crate) const DICT: u8 = b'd';
pub(crate) const LIST: u8 = b'l';
pub(crate) const TUPLE: u8 = b't';
pub(crate) const TUPLE1: u8 = 0x85;
pub(crate) const TUPLE2: u8 = 0x86;
pub(crate) const TUPLE3: u8 = 0x87;
pub(crate) const APPEND: u8 = b'a';
pub(crate) const APPENDS: u8 = b'e';
pub(crate) const SETITEM: u8 = b's';
pub(crate) const SETITEMS: u8 = b'u';
pub(crate) const EMPTY_SET: u8 = 0x8f;
pub(crate) const ADD_ITEMS: u8 = 0x90;
pub(crate) const FROZEN_SET: u8 = 0x91;

pub(crate) const BINGET: u8 = b'h';
pub(crate) const LONG_BINGET: u8 = b'j';
pub(crate) const BINPUT: u8 = b'q';
pub(crate) const LONG_BINPUT: u8 = b'r';
pub(crate) const MEMOIZE: u8 = 0x94;

pub(crate) const GLOBAL: u8 = b'c';
pub(crate) const STACK_GLOBAL: u8 = 0x93;
pub(crate) const REDUCE: u8 = b'R';
pub(crate) const BUILD: u8 = b'b';
pub(crate) const PERSISTENT: u8 = b'Q';

/// Other opcodes that name, build or call something: objects, extensions, persistent ids of protocol 0, buffers.
pub(crate) const RUNS: &[u8] = &[b'i', b'o', 0x81, 0x92, 0x82, 0x83, 0x84, b'P', 0x96, 0x97, 0x98];
