//! Graphs, as captures make them, and objects of the program that live as long.

#![expect(unsafe_code, reason = "exports C symbols")]

use core::ffi::{c_uint, c_void};

use crate::code::Code;
use crate::context;
use crate::entry::export;
use crate::ffi::{Out, Word};
use crate::graph;
use crate::op::HostCall;
use crate::stream;

export! {
    fn cuGraphCreate(out: Out<Word>, _flags: c_uint) {
        out.wanted()?;
        out.set(Word::new(graph::create()))
    }

    fn cuGraphDestroy(graph: Word) {
        graph::destroy(graph.number())
    }

    fn cuGraphGetNodes(graph: Word, nodes: Word, count: Out<usize>) {
        if nodes.number() != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        count.set(graph::count(graph.number())?)
    }

    fn cuGraphInstantiateWithFlags(out: Out<Word>, graph: Word, _flags: u64) {
        out.wanted()?;
        out.set(Word::new(graph::instantiate(graph.number())?))
    }

    fn cuGraphExecDestroy(exec: Word) {
        graph::destroy_exec(exec.number())
    }

    fn cuGraphLaunch / cuGraphLaunch_ptsz(exec: Word, stream: Word) {
        let stream = stream::resolve(stream, context::current()?)?;
        stream::submit_all(stream, graph::ops(exec.number())?)
    }

    fn cuUserObjectCreate(
        out: Out<Word>,
        data: Word,
        destroy: extern "C" fn(*mut c_void),
        held: c_uint,
        flags: c_uint,
    ) {
        out.wanted()?;
        if held == 0 || flags != 1 {
            return Err(Code::INVALID_VALUE);
        }
        let destroy = HostCall { function: destroy, data: data.number() };
        out.set(Word::new(graph::object(destroy, held)))
    }

    fn cuUserObjectRetain(object: Word, count: c_uint) {
        graph::retain(object.number(), count)
    }

    fn cuUserObjectRelease(object: Word, count: c_uint) {
        graph::release(object.number(), count)
    }

    fn cuGraphRetainUserObject(graph: Word, object: Word, count: c_uint, flags: c_uint) {
        graph::keep(graph.number(), object.number(), count, flags == 1)
    }
}
