# The Python module, and a package folder in the build tree from which `import hyalite` works.
find_package(Python 3.11 COMPONENTS Interpreter Development.Module REQUIRED)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_STRIP_TRAILING_WHITESPACE
  OUTPUT_VARIABLE nanobind_ROOT COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

file(GLOB HYALITE_PYTHON_SOURCES CONFIGURE_DEPENDS src/python/*.cpp)
nanobind_add_module(_C NB_STATIC NOMINSIZE NOSTRIP ${HYALITE_PYTHON_SOURCES})
target_link_libraries(_C PRIVATE hyalite_core)
target_compile_definitions(_C PRIVATE HYALITE_VERSION="${PROJECT_VERSION}")
if(NOT APPLE)
  # The core marks the C++ library's symbols as visible; from the module nobody may take them.
  set(exports ${PROJECT_BINARY_DIR}/module_exports.map)
  file(CONFIGURE OUTPUT ${exports} CONTENT "{ global: PyInit__C; local: *; };\n")
  target_link_options(_C PRIVATE LINKER:--version-script=${exports})
  set_target_properties(_C PROPERTIES LINK_DEPENDS ${exports})
endif()
set(HYALITE_PACKAGE ${PROJECT_BINARY_DIR}/python/hyalite)
set_target_properties(_C PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${HYALITE_PACKAGE})

# Links, so that an edited Python file needs no build.
file(GLOB HYALITE_PYTHON_FILES CONFIGURE_DEPENDS python/hyalite/*.py python/hyalite/py.typed)
file(MAKE_DIRECTORY ${HYALITE_PACKAGE})
foreach(f IN LISTS HYALITE_PYTHON_FILES)
  get_filename_component(base ${f} NAME)
  file(CREATE_LINK ${f} ${HYALITE_PACKAGE}/${base} SYMBOLIC)
endforeach()

# The stub, made by importing what was built; a sanitizer's library must be there before the interpreter.
set(HYALITE_STUB_ENVIRONMENT PYTHONPATH=${PROJECT_BINARY_DIR}/python PYTHONDONTWRITEBYTECODE=1)
if(HYALITE_SANITIZE)
  string(REGEX MATCH "address|thread" sanitizer ${HYALITE_SANITIZE})
  string(SUBSTRING "${sanitizer}" 0 1 initial)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=lib${initial}san.so OUTPUT_STRIP_TRAILING_WHITESPACE
    OUTPUT_VARIABLE sanitizer COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND HYALITE_STUB_ENVIRONMENT LD_PRELOAD=${sanitizer} ASAN_OPTIONS=detect_leaks=0)
endif()
add_custom_command(
  OUTPUT ${HYALITE_PACKAGE}/__init__.pyi
  COMMAND ${CMAKE_COMMAND} -E env ${HYALITE_STUB_ENVIRONMENT} ${Python_EXECUTABLE}
          ${PROJECT_SOURCE_DIR}/tools/generate_stubs.py ${HYALITE_PACKAGE}/__init__.pyi
  DEPENDS _C ${PROJECT_SOURCE_DIR}/tools/generate_stubs.py ${HYALITE_PYTHON_FILES}
  VERBATIM)
# All of `import hyalite`: what the demo, the benchmarks and a script need.
add_custom_target(python_package ALL DEPENDS _C ${HYALITE_PACKAGE}/__init__.pyi)

install(FILES ${HYALITE_PACKAGE}/__init__.pyi DESTINATION hyalite COMPONENT python)
install(TARGETS _C LIBRARY DESTINATION hyalite COMPONENT python)
