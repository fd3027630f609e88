//! The shared suite, on the first device that is here, while the validation layer watches where there is one.
use omniheap_conformance::{Rig, Spares};
use omniheap_core::Result;
use omniheap_vulkan::{Options, Validation, Vulkan, Which};
use std::sync::{Arc, Mutex};

static SPARES: Spares<Vulkan> = Spares::new();

/// Returns a device whose every validation message fails the case.
fn first() -> Result<Rig<Arc<Vulkan>>> {
    let options = Options::default().device(Which::Index(0)).validation(Validation::IfPresent);
    let lease = SPARES.take(|| Vulkan::open_with(options))?;
    let vulkan = Arc::clone(lease.device());
    let messages = vulkan.messages().cloned().unwrap_or_default();
    let told = Mutex::new(messages.texts().len());
    Ok(Rig::new(vulkan).keeping(lease).with_messages(move || {
        let mut told = told.lock().expect("no panic while held");
        let fresh = messages.texts().split_off(*told);
        *told += fresh.len();
        fresh
    }))
}

omniheap_conformance::conformance! {
    vulkan => first,
}
