//! A device on which a test decides about each call before it is made: a wait that lets a held timeline go, say.
#![expect(unsafe_code, reason = "signs the contract of Hooks")]
use omniheap_host::Host;
use omniheap_layers::{Call, Hooks, Layer, Verdict};
use std::sync::Arc;

type Decide = Box<dyn Fn(&Call) -> Verdict + Send + Sync>;

pub(crate) struct Before(Decide);

// SAFETY: caps, sizes and addresses are those of the wrapped backend; a call is made or refused as a whole.
unsafe impl Hooks for Before {
    fn before(&self, call: &Call) -> Verdict {
        (self.0)(call)
    }
}

/// A device that asks `decide` about each call.
pub(crate) type Asked = Layer<Arc<Host>, Before>;

pub(crate) fn asked(
    host: &Arc<Host>,
    decide: impl Fn(&Call) -> Verdict + Send + Sync + 'static,
) -> Asked {
    Layer::wrap(Arc::clone(host), Before(Box::new(decide)))
}
