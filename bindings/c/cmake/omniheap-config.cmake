# find_package(omniheap CONFIG) gives omniheap::omniheap, the shared library, and omniheap::static.
# Nothing is searched for, and nothing cached: the files lie beside this one, also after a move, and another prefix has its own.
get_filename_component(_omniheap_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(_omniheap_include "${_omniheap_prefix}/include")
set(_omniheap_shared "${_omniheap_prefix}/lib/libomniheap_c.so")
set(_omniheap_archive "${_omniheap_prefix}/lib/libomniheap_c.a")
if(EXISTS "${_omniheap_shared}" AND NOT TARGET omniheap::omniheap)
  add_library(omniheap::omniheap SHARED IMPORTED)
  set_target_properties(omniheap::omniheap PROPERTIES
    IMPORTED_LOCATION "${_omniheap_shared}"
    INTERFACE_INCLUDE_DIRECTORIES "${_omniheap_include}")
endif()
if(EXISTS "${_omniheap_archive}" AND NOT TARGET omniheap::static)
  find_package(Threads REQUIRED)
  add_library(omniheap::static STATIC IMPORTED)
  set_target_properties(omniheap::static PROPERTIES
    IMPORTED_LOCATION "${_omniheap_archive}" INTERFACE_INCLUDE_DIRECTORIES "${_omniheap_include}"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
endif()
if(NOT TARGET omniheap::omniheap AND NOT TARGET omniheap::static)
  set(omniheap_FOUND FALSE)
  set(omniheap_NOT_FOUND_MESSAGE "no libomniheap_c under ${_omniheap_prefix}/lib; run `cargo xtask install-c PREFIX`")
endif()
