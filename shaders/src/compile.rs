//! From WGSL to what a launch needs: SPIR-V, and what binds to it.
use naga::back::spv;
use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{AddressSpace, Module, StorageAccess};
use omniheap_seam::Slot;

/// Stands for the words of shared memory until SPIR-V is made; a number that no kernel uses.
const SHARED_WORDS: u32 = 16_411;

/// What a kernel's WGSL says, and its SPIR-V.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Threads of a group in each direction.
    pub group: [u32; 3],
    /// What it binds, in order.
    pub slots: Vec<Slot>,
    /// Bytes of its parameters.
    pub parameters: u32,
    /// SPIR-V words.
    pub spirv: Vec<u32>,
}

/// Compiles the entry point `name`.
///
/// # Panics
///
/// When the text is wrong, with naga's reason: it is part of the program.
#[must_use]
pub fn compile(name: &str, wgsl: &str) -> Compiled {
    let module = naga::front::wgsl::parse_str(wgsl)
        .unwrap_or_else(|why| panic!("{name}: {}", why.emit_to_string(wgsl)));
    let entry = module.entry_points.iter().find(|entry| entry.name == name);
    let group =
        entry.unwrap_or_else(|| panic!("{name}: no entry point has this name")).workgroup_size;
    let (slots, parameters) = (slots(&module), parameters(&module));
    Compiled { group, slots, parameters, spirv: spirv(name, &module) }
}

/// Returns the slots, in the order of their bindings.
fn slots(module: &Module) -> Vec<Slot> {
    let mut slots: Vec<_> = module
        .global_variables
        .iter()
        .filter_map(|(_, variable)| {
            let slot = match variable.space {
                AddressSpace::Uniform => Slot::Constant,
                AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => {
                    Slot::Write
                }
                AddressSpace::Storage { .. } => Slot::Read,
                _ => return None,
            };
            Some((variable.binding.expect("buffers have bindings").binding, slot))
        })
        .collect();
    slots.sort_unstable_by_key(|slot| slot.0);
    assert!((0u32..).zip(&slots).all(|(index, slot)| slot.0 == index), "bindings without gaps");
    slots.into_iter().map(|slot| slot.1).collect()
}

/// Returns the bytes of the parameters.
fn parameters(module: &Module) -> u32 {
    let variable = module.global_variables.iter().find(|(_, v)| v.space == AddressSpace::Immediate);
    variable.map_or(0, |(_, variable)| module.types[variable.ty].inner.size(module.to_ctx()))
}

fn spirv(name: &str, module: &Module) -> Vec<u32> {
    let info = Validator::new(ValidationFlags::all(), Capabilities::IMMEDIATES)
        .validate(module)
        .unwrap_or_else(|why| panic!("{name}: {}", why.into_inner()));
    let values = [("shared_words".to_owned(), f64::from(SHARED_WORDS))];
    let values = if module.overrides.is_empty() { [].into() } else { values.into_iter().collect() };
    let (module, info) =
        naga::back::pipeline_constants::process_overrides(module, &info, None, &values)
            .unwrap_or_else(|why| panic!("{name}: {why}"));
    let options = spv::Options {
        lang_version: (1, 0),
        flags: spv::WriterFlags::empty(),
        // As CUDA has it: what nobody wrote is not zero. Kernels write before they read.
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        // Kernels end and stay inside their arguments: that is what a launch promises.
        force_loop_bounding: false,
        emit_int_div_checks: false,
        ..spv::Options::default()
    };
    let words = spv::write_vec(&module, &info, &options, None)
        .unwrap_or_else(|why| panic!("{name}: {why}"));
    specialize(words)
}

/// Makes the stand-in for the words of shared memory a specialization constant, number 0.
fn specialize(mut words: Vec<u32>) -> Vec<u32> {
    const CONSTANT: u32 = 43;
    const SPEC_CONSTANT: u32 = 50;
    const DECORATE: u32 = 71;
    const SPEC_ID: u32 = 1;
    let mut at = 5;
    let (mut found, mut types) = (None, None);
    while at < words.len() {
        let (count, code) = (words[at] >> 16, words[at] & 0xffff);
        // The first type ends the decorations.
        if (19..=33).contains(&code) && types.is_none() {
            types = Some(at);
        }
        if code == CONSTANT && count == 4 && words[at + 3] == SHARED_WORDS {
            words[at] = count << 16 | SPEC_CONSTANT;
            found = Some(words[at + 2]);
        }
        at += count as usize;
    }
    if let (Some(id), Some(types)) = (found, types) {
        words.splice(types..types, [4 << 16 | DECORATE, id, SPEC_ID, 0]);
    }
    words
}
