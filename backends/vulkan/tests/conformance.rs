//! The shared suite, on the first device that is here, while the validation layer watches where there is one.
//!
//! One case at a time: older layers crash where threads open and close devices (Vulkan-ValidationLayers#4391).
#![expect(unsafe_code, reason = "lends one device to two owners")]
use omniheap_conformance::{Rig, Spares};
use omniheap_core::Result;
use omniheap_vulkan::{Bare, Options, Validation, Vulkan, Which};
use std::sync::{Arc, Mutex};

static SPARES: Spares<Vulkan> = Spares::new();

/// Returns a device whose every validation message fails the case.
fn first() -> Result<Rig<Arc<Vulkan>>> {
    let options = Options::default().device(Which::Index(0)).validation(Validation::IfPresent);
    let lease = SPARES.take(|| Vulkan::open_with(options))?;
    let vulkan = Arc::clone(lease.device());
    let messages = vulkan.messages().cloned().unwrap_or_default();
    let told = Mutex::new(messages.texts().len());
    let fresh = move || {
        let mut told = told.lock().expect("no panic while held");
        let fresh = messages.texts().split_off(*told);
        *told += fresh.len();
        fresh
    };
    Ok(Rig::new(vulkan).keeping(lease).with_messages(fresh).one_at_a_time())
}

/// Returns a device without queues, over one that the first opened.
fn bare() -> Result<Rig<Arc<Vulkan>>> {
    let options = Options::default().device(Which::Index(0)).validation(Validation::IfPresent);
    let owner = Vulkan::open_with(options)?;
    let bare = Bare {
        instance: owner.ash_instance().clone(),
        physical_device: owner.physical_device(),
        device: owner.ash_device().clone(),
        enabled: &[],
    };
    // SAFETY: the rig keeps the owner; no case submits work that uses the memory.
    let guest = Arc::new(unsafe { Vulkan::wrap_memory(bare, options) }?);
    let messages = owner.messages().cloned().unwrap_or_default();
    Ok(Rig::new(guest).keeping(owner).with_messages(move || messages.texts()).one_at_a_time())
}

omniheap_conformance::conformance! {
    vulkan => first,
    vulkan_bare => bare,
}
