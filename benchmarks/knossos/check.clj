; Checks one of the benchmarks' EDN histories with Knossos: prints true, false or :unknown.
(require '[knossos.competition :as competition]
         '[knossos.model :as model]
         '[clojure.edn :as edn]
         '[clojure.java.io :as io])

(let [[file wanted] *command-line-args*
      operations (with-open [reader (java.io.PushbackReader. (io/reader file))]
                   (into [] (take-while some?) (repeatedly #(edn/read {:eof nil} reader))))
      specification (case wanted
                      "fifo-queue" (model/fifo-queue)
                      "register" (model/register)
                      "cas-register" (model/cas-register))]
  (println (:valid? (competition/analysis specification operations)))
  (System/exit 0))
