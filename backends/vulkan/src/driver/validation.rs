//! The validation layer's voice: every message is kept, so that a test can insist on silence.
#![expect(unsafe_code, reason = "the driver calls back with raw pointers")]
use ash::vk;
use core::ffi::{CStr, c_void};
use omniheap_seam::lock;
use std::sync::{Arc, Mutex};

/// Use of the Khronos validation layer, with synchronization checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    /// Not loaded.
    #[default]
    Off,
    /// Loaded where the machine has it.
    IfPresent,
    /// Loaded; opening fails with `Unsupported` where the machine lacks it.
    On,
}

pub(crate) const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// The messages of one instance; clones share them, and they outlive the device.
#[derive(Clone, Debug, Default)]
pub struct Messages(Arc<Mutex<Vec<String>>>);

impl Messages {
    /// Returns the number of messages so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.texts().len() as u64
    }

    /// Returns the messages, oldest first.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        lock(&self.0).clone()
    }

    fn push(&self, text: String) {
        lock(&self.0).push(text);
    }

    /// Returns the pointer that the driver hands back to [`receive`]; good for as long as `self` stays where it is.
    pub(crate) fn as_user_data(&self) -> *mut c_void {
        core::ptr::from_ref(self).cast_mut().cast()
    }
}

/// Returns the messenger's options: warnings and errors of the layer, without the loader's messages.
pub(crate) fn messenger_info(messages: &Messages) -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
    use vk::{
        DebugUtilsMessageSeverityFlagsEXT as Severity, DebugUtilsMessageTypeFlagsEXT as Type,
    };
    vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(Severity::WARNING | Severity::ERROR)
        .message_type(Type::VALIDATION)
        .pfn_user_callback(Some(receive))
        .user_data(messages.as_user_data())
}

/// Keeps one message. Never aborts the call that caused it: the test decides.
unsafe extern "system" fn receive(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kinds: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the driver passes a valid structure for the time of the call, as its specification demands.
    let data = unsafe { &*data };
    // SAFETY: `user` is what `messenger_info` was given; the instance keeps it in place for its whole life.
    let messages = unsafe { &*user.cast_const().cast::<Messages>() };
    let text = if data.p_message.is_null() {
        String::from("a message without text")
    } else {
        // SAFETY: not null, and the driver ends its texts with a zero byte.
        unsafe { CStr::from_ptr(data.p_message) }.to_string_lossy().into_owned()
    };
    messages.push(text);
    vk::FALSE
}
