//! Native objects that are destroyed later.
#![expect(unsafe_code, reason = "destroys handles that their owners gave up")]
use ash::vk;
use core::fmt;

/// A handle of an object that can be [retired](crate::Vulkan::retire).
pub trait Object: vk::Handle + Copy + fmt::Debug + Send + Sync + sealed::Sealed {}

pub(crate) mod sealed {
    pub trait Sealed {
        /// # Safety
        ///
        /// The handle is the device's, nobody destroys it again, and no work uses it.
        unsafe fn destroy(self, device: &ash::Device);
    }
}

macro_rules! objects {
    ($($handle:ident by $destroy:ident;)*) => {
        $(impl Object for vk::$handle {}
        impl sealed::Sealed for vk::$handle {
            unsafe fn destroy(self, device: &ash::Device) {
                // SAFETY: the caller's promise.
                unsafe { device.$destroy(self, None) }
            }
        })*
    };
}

objects! {
    Buffer by destroy_buffer;
    BufferView by destroy_buffer_view;
    Image by destroy_image;
    ImageView by destroy_image_view;
}

/// An object that is destroyed once no work uses it.
pub(crate) struct Retired {
    raw: u64,
    destroy: unsafe fn(&ash::Device, u64),
}

impl Retired {
    /// # Safety
    ///
    /// The handle is the device's, nobody else destroys it, and no work uses it any more when [`destroy`](Self::destroy) is called.
    pub(crate) unsafe fn new<H: Object>(handle: H) -> Self {
        Self { raw: handle.as_raw(), destroy: destroy::<H> }
    }

    pub(crate) fn destroy(self, device: &ash::Device) {
        // SAFETY: promised to `new`; `self` is taken, so it is destroyed once.
        unsafe { (self.destroy)(device, self.raw) };
    }
}

/// # Safety
///
/// As for [`Sealed::destroy`](sealed::Sealed::destroy); `raw` is a handle of this kind.
unsafe fn destroy<H: Object>(device: &ash::Device, raw: u64) {
    // SAFETY: the caller's promise.
    unsafe { H::from_raw(raw).destroy(device) };
}

impl fmt::Debug for Retired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Retired").field(&self.raw).finish()
    }
}
