//! The instance: finding the loader, listing devices, and the one place where the driver's codes become errors.
#![expect(unsafe_code, reason = "every call into the driver is unsafe")]
pub(crate) mod device;
pub(crate) mod hooks;
pub(crate) mod objects;
pub(crate) mod physical;
pub(crate) mod probe;
pub(crate) mod queues;
pub(crate) mod turns;
pub(crate) mod validation;

use self::validation::{Messages, Validation};
use ash::{ext, khr, vk};
use core::ffi::CStr;
use omniheap_seam::{Error, ErrorKind, Result};

/// The version this backend is written for; devices below [`LEAST`] are refused, but for memory alone.
pub(crate) const WANTED: u32 = vk::API_VERSION_1_3;
/// The version whose calls are used without asking.
pub(crate) const LEAST: u32 = vk::API_VERSION_1_1;

/// Translates the driver's code.
pub(crate) fn error(code: vk::Result) -> Error {
    let kind = match code {
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_TOO_MANY_OBJECTS => {
            ErrorKind::OutOfDeviceMemory
        }
        vk::Result::ERROR_OUT_OF_HOST_MEMORY => ErrorKind::OutOfHostMemory,
        vk::Result::ERROR_DEVICE_LOST => ErrorKind::DeviceLost,
        vk::Result::ERROR_INVALID_EXTERNAL_HANDLE => ErrorKind::Foreign,
        vk::Result::ERROR_MEMORY_MAP_FAILED => ErrorKind::NotMappable,
        vk::Result::ERROR_INCOMPATIBLE_DRIVER
        | vk::Result::ERROR_LAYER_NOT_PRESENT
        | vk::Result::ERROR_EXTENSION_NOT_PRESENT
        | vk::Result::ERROR_FEATURE_NOT_PRESENT
        | vk::Result::ERROR_INITIALIZATION_FAILED => ErrorKind::Unsupported,
        _ => ErrorKind::Driver,
    };
    Error::new(kind).with_native(i64::from(code.as_raw()))
}

/// Turns the driver's result into ours.
pub(crate) fn check<T>(result: ash::prelude::VkResult<T>) -> Result<T> {
    result.map_err(error)
}

/// Owner of a native object, who destroys it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// We do, when the last user is gone.
    Us,
    /// The engine that lent it.
    Caller,
}

/// An instance and, where validation is on, its messenger.
pub(crate) struct Instance {
    pub(crate) raw: ash::Instance,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    /// Boxed: the driver holds its address.
    messages: Option<Box<Messages>>,
    pub(crate) names: Names,
    /// The version whose calls it takes.
    pub(crate) version: u32,
    owner: Owner,
    /// Keeps the loader's library in memory; `None` where an engine keeps it.
    pub(crate) entry: Option<ash::Entry>,
}

/// Availability of debug names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// The debug-utils extension is enabled.
    Shown,
    /// Names are dropped: nobody listens.
    Dropped,
}

impl Instance {
    /// Opens an instance of our own.
    ///
    /// # Errors
    ///
    /// `Unsupported` without a loader or driver, or when validation is demanded and absent; the driver's error.
    pub(crate) fn open(validation: Validation) -> Result<Self> {
        // SAFETY: loading runs the library's initialisers; the system's loader is trusted like any system library.
        let entry = unsafe { ash::Entry::load() }.map_err(|_| {
            ErrorKind::Unsupported.because("there is no Vulkan loader; install `libvulkan`")
        })?;
        // SAFETY: the entry was loaded above; the call has no precondition.
        let version = check(unsafe { entry.try_enumerate_instance_version() })?;
        if version.is_none_or(|version| version < LEAST) {
            return Err(ErrorKind::Unsupported.because("Vulkan is older than 1.1"));
        }
        let layered = layered(&entry, validation)?;
        let extensions = instance_extensions(&entry, layered)?;
        let messages = layered.then(|| Box::new(Messages::default()));
        let raw = create(&entry, &extensions, messages.as_deref())?;
        let names = if extensions.contains(&ext::debug_utils::NAME) {
            Names::Shown
        } else {
            Names::Dropped
        };
        let owner = Owner::Us;
        let version = WANTED;
        let mut instance =
            Self { raw, messenger: None, messages, names, version, owner, entry: None };
        instance.listen(&entry)?;
        instance.entry = Some(entry);
        Ok(instance)
    }

    /// Takes an instance that an engine owns and keeps alive.
    pub(crate) fn wrap(
        entry: Option<ash::Entry>,
        raw: ash::Instance,
        (names, version): (Names, u32),
    ) -> Self {
        let owner = Owner::Caller;
        Self { raw, messenger: None, messages: None, names, version, owner, entry }
    }

    fn listen(&mut self, entry: &ash::Entry) -> Result<()> {
        let Some(messages) = &self.messages else { return Ok(()) };
        let utils = ext::debug_utils::Instance::new(entry, &self.raw);
        let info = validation::messenger_info(messages);
        // SAFETY: the instance is alive, was created with debug-utils, and keeps `messages` in place until `drop`.
        let messenger = check(unsafe { utils.create_debug_utils_messenger(&info, None) })?;
        self.messenger = Some((utils, messenger));
        Ok(())
    }

    /// Returns the layer's messages, where validation is on.
    pub(crate) fn messages(&self) -> Option<&Messages> {
        self.messages.as_deref()
    }

    /// Returns every physical device, in the loader's order.
    pub(crate) fn physical_devices(&self) -> Result<Vec<vk::PhysicalDevice>> {
        // SAFETY: the instance is alive as long as `self`.
        check(unsafe { self.raw.enumerate_physical_devices() })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some((utils, messenger)) = self.messenger.take() {
            // SAFETY: created by `listen` from this instance and destroyed once.
            unsafe { utils.destroy_debug_utils_messenger(messenger, None) };
        }
        if self.owner == Owner::Us {
            // SAFETY: ours, and every device of it holds an `Arc` of `self`, so none is left.
            unsafe { self.raw.destroy_instance(None) };
        }
    }
}

fn layered(entry: &ash::Entry, validation: Validation) -> Result<bool> {
    if validation == Validation::Off {
        return Ok(false);
    }
    // SAFETY: the entry is loaded; the call has no other precondition.
    let layers = check(unsafe { entry.enumerate_instance_layer_properties() })?;
    let present = layers.iter().any(|l| l.layer_name_as_c_str() == Ok(validation::LAYER));
    match (present, validation) {
        (false, Validation::On) => Err(ErrorKind::Unsupported.because(
            "the Vulkan validation layer is not installed; install it or use another `Validation`",
        )),
        (present, _) => Ok(present),
    }
}

/// Returns the extensions to enable; the layer brings some of its own.
fn instance_extensions(entry: &ash::Entry, layered: bool) -> Result<Vec<&'static CStr>> {
    // SAFETY: the entry is loaded; a null layer name asks for the loader's and drivers' own.
    let mut known = check(unsafe { entry.enumerate_instance_extension_properties(None) })?;
    if layered {
        let layer = Some(validation::LAYER);
        // SAFETY: the entry is loaded, and `layered` found this layer.
        known.extend(check(unsafe { entry.enumerate_instance_extension_properties(layer) })?);
    }
    let wanted = [
        ext::debug_utils::NAME,
        khr::portability_enumeration::NAME,
        ext::validation_features::NAME,
    ];
    let found = |name: &CStr| known.iter().any(|e| e.extension_name_as_c_str() == Ok(name));
    Ok(wanted.into_iter().filter(|name| found(name)).collect())
}

fn create(
    entry: &ash::Entry,
    extensions: &[&CStr],
    messages: Option<&Messages>,
) -> Result<ash::Instance> {
    let names: Vec<_> = extensions.iter().map(|name| name.as_ptr()).collect();
    let layers = [validation::LAYER.as_ptr()];
    let app = vk::ApplicationInfo::default().engine_name(c"omniheap").api_version(WANTED);
    let checks = [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
    let mut features = vk::ValidationFeaturesEXT::default().enabled_validation_features(&checks);
    let mut early = messages.map(validation::messenger_info);
    let mut info =
        vk::InstanceCreateInfo::default().application_info(&app).enabled_extension_names(&names);
    if extensions.contains(&khr::portability_enumeration::NAME) {
        info = info.flags(vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR);
    }
    if let Some(early) = &mut early {
        info = info.enabled_layer_names(&layers).push_next(early);
        if extensions.contains(&ext::validation_features::NAME) {
            info = info.push_next(&mut features);
        }
    }
    // SAFETY: `info` and all it points to live until the call returns; names come from the driver's own lists.
    check(unsafe { entry.create_instance(&info, None) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_kinds() {
        use vk::Result as R;
        let rows = [
            (R::ERROR_OUT_OF_DEVICE_MEMORY, ErrorKind::OutOfDeviceMemory),
            (R::ERROR_TOO_MANY_OBJECTS, ErrorKind::OutOfDeviceMemory),
            (R::ERROR_OUT_OF_HOST_MEMORY, ErrorKind::OutOfHostMemory),
            (R::ERROR_DEVICE_LOST, ErrorKind::DeviceLost),
            (R::ERROR_INVALID_EXTERNAL_HANDLE, ErrorKind::Foreign),
            (R::ERROR_MEMORY_MAP_FAILED, ErrorKind::NotMappable),
            (R::ERROR_INCOMPATIBLE_DRIVER, ErrorKind::Unsupported),
            (R::ERROR_FRAGMENTATION, ErrorKind::Driver),
            (R::ERROR_UNKNOWN, ErrorKind::Driver),
        ];
        for (code, kind) in rows {
            let error = error(code);
            assert_eq!((error.kind(), error.native()), (kind, i64::from(code.as_raw())));
        }
    }
}
